"""What may leave this machine: which hosts are elsewhere, which key goes where, which data stay.

`hosts` knows this machine and what a key may be sent to. `secrets` masks keys in everything that is written.
`data_policy` is the one check that is made where the data of an environment would leave.
"""
