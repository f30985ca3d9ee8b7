"""trace.py FILE RANKS FIRST LAST KINDS... - checks that FILE is a trace of these steps at all ranks in the trace-event
format: complete fields, no negative time, spans that nest in each thread, flights that end, steps of all ranks on one
clock, and spans of all KINDS."""
import collections
import json
import sys


def check_fields(event):
    assert event["ph"] in ("M", "X", "b", "e"), event
    assert isinstance(event["name"], str) and event["name"], event
    assert isinstance(event["pid"], int), event
    if event["ph"] == "M":
        return
    assert isinstance(event["tid"], int) and event["tid"] > 0, event
    assert event["cat"] and event["ts"] >= 0, event
    assert event["ph"] != "X" or event["dur"] >= 0, event


def nanoseconds(text):
    whole, part = text.split(".")
    assert len(part) == 3, text
    return 1000 * int(whole) + int(part)


def check_nesting(spans):
    """Spans of a thread, as pairs: each is inside the one around it."""
    around = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while around and around[-1] <= begin:
            around.pop()
        assert not around or end <= around[-1], (begin, end, around)
        around.append(end)


def check_flights(flights):
    for event in flights:
        assert event["ph"] == "e" or "args" in event, event
    by_id = collections.defaultdict(list)
    for event in flights:
        by_id[event["cat"], event["id"]].append(event)
    for pair in by_id.values():
        assert [event["ph"] for event in pair] == ["b", "e"], pair
        assert pair[0]["ts"] <= pair[1]["ts"] and pair[0]["name"] == pair[1]["name"], pair


def check_steps(steps, first, last):
    """Every step is there once at each rank, in order; ranks cannot be a whole step apart."""
    for rank, found in steps.items():
        assert [number for number, _, _ in found] == list(range(first, last + 1)), (rank, found)
        for (_, _, end), (_, begin, _) in zip(found, found[1:]):
            assert end <= begin, (rank, found)
    for i in range(last - first + 1):
        latest_begin = max(found[i][1] for found in steps.values())
        earliest_end = min(found[i][2] for found in steps.values())
        assert latest_begin < earliest_end, (first + i, steps)


def main():
    path, ranks, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with open(path, encoding="utf-8") as file:
        trace = json.load(file, parse_float=lambda text: nanoseconds(text))
    events = trace["traceEvents"]
    for event in events:
        check_fields(event)
    spans, steps, kinds = collections.defaultdict(list), collections.defaultdict(list), set()
    for event in events:
        kinds.add(event.get("cat"))
        if event["ph"] != "X":
            continue
        spans[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["cat"] == "step":
            steps[event["pid"]].append((event["args"]["step"], event["ts"], event["ts"] + event["dur"]))
    assert sorted(steps) == list(range(ranks)), steps
    for thread in spans.values():
        check_nesting(thread)
    check_flights([event for event in events if event["ph"] in "be"])
    check_steps(steps, first, last)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert all(names[rank].startswith(f"rank {rank} ") for rank in range(ranks)), names
    threads = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert threads >= set(spans), (threads, set(spans))
    assert kinds >= set(sys.argv[5:]), (sys.argv[5:], kinds)


main()
