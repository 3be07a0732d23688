"""What may leave this machine, and how: which hosts are elsewhere, which key goes where, which data stay.

`hosts` says which addresses are this machine and where a key may be sent. `data_policy` keeps the data of a restricted
environment on this machine. `connection` sends bounded requests with several attempts, and `public`
keeps some of them to one host of the internet, in its rate; `http` reads what comes back, `answers` keeps
it. `background` is an event loop for callers without one.
"""
