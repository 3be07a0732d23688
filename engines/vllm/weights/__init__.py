"""The policy's weights on their way to a server of tokens: `sender` has `WeightSender`, which a trainer calls."""
