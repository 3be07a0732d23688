"""Real servers with TLS on 127.0.0.1 that stand for hosts of the internet, and certificates that say so."""

import datetime
import functools
import ssl
from contextlib import contextmanager

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.servers import Server, run_server
from viewbox.network.public import PublicTransport

PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority of its own. `believed` is what a client has that believes it and no other."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of tests")])
        builder = self._start(self.name, self.key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(self.key, hashes.SHA256())
        self.believed = ssl.create_default_context(cadata=self.to_pem().decode())

    def _start(self, subject, key):
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def to_pem(self):
        return self.certificate.public_bytes(PEM)

    def write_certificate(self, path, *names):
        """What a server of these names needs; the file holds its key, too."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of tests")])
        extension = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        certificate = self._start(subject, key.public_key()).add_extension(extension, critical=False)
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path.write_bytes(private + certificate.sign(self.key, hashes.SHA256()).public_bytes(PEM))
        return path


@functools.cache
def get_authority():
    """One for all tests of a process."""
    return Authority()


class TlsServer(Server):
    """A `Server` that speaks TLS; `names` holds the name that each connection asked for (SNI)."""

    def __init__(self, answer, certificate, by_path=None):
        super().__init__(answer, by_path=by_path)
        self.names = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.sni_callback = lambda sock, name, context: self.names.append(name)

    def get_request(self):
        connection, address = super().get_request()
        # the handshake is made in the connection's own thread
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address


@contextmanager
def serve_tls(folder, answer, *names, by_path=None, authority=None):
    """Runs a server in a thread that has a certificate for `names`."""
    certificate = (authority or get_authority()).write_certificate(folder / f"{names[0]}.pem", *names)
    with run_server(TlsServer(answer, certificate, by_path)) as server:
        yield server


class StandIn(PublicTransport):
    """A transport that believes an authority of tests, and reaches servers of 127.0.0.1 in the place of public ones.

    Names, addresses and certificates are judged as always; only the last step, the connection, goes elsewhere. Each
    name of `servers` has a public address of its own, to which it leads, unless `addresses` says where.
    """

    def __init__(self, host, servers, addresses=None, authority=None):
        super().__init__(host, (authority or get_authority()).believed)
        own = {name: f"130.14.29.{number}" for number, name in enumerate(servers, 1)}
        self.addresses = addresses or {name: [address] for name, address in own.items()}
        self.ports = {own[name]: server.server_port for name, server in servers.items()}

    async def resolve(self, name):
        if name not in self.addresses:
            raise OSError("no such name")
        return self.addresses[name]

    def locate(self, address):
        return ("127.0.0.1", self.ports[address]) if address in self.ports else super().locate(address)
