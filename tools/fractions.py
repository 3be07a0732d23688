"""Points and boxes of a view, as tools take and return them."""


class ViewFractions(tuple[float, ...]):
    """A point or box in fractions of the view. Among a tool's facts, the model reads it in its own coordinates.

    Arguments that are points or boxes are `ViewFractions` already; a tool wraps those that it computes.
    """
