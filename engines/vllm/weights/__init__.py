"""The policy's weights on their way to a server of tokens, before each generation.

`sender` has `WeightSender`, which a trainer calls; `tensors` says which tensors are sent, `transfers` how.
"""
