"""What a recorded update holds (see `record`), for environments with verl and without it."""


def read_rows(rank):
    """Return the ids of a rank's rows, without those that verl adds so that all ranks have as many."""
    given = rank["given"]
    return [
        tuple(ids.tolist()) for ids, mask in zip(given["input_ids"], given["response_mask"], strict=True) if mask.any()
    ]
