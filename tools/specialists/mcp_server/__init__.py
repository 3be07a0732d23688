"""An MCP server as `kind: mcp` uses it: its process or address, its session, its calls, and what it offers.

`process` and `address` are the bounded transports below the official client, `session` is one connection, `server`
shares it between calls and starts it again, `listing` compares what a server offers with a config, `results` reads what
it returns.
"""
