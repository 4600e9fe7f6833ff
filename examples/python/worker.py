#!/usr/bin/env python3
"""A worker in Python: claims a subscription's messages, handles them, records the outcome.

    DATABASE_URL=postgres://my_worker@localhost/shop worker.py TOPIC SUBSCRIPTION  (or PGHOST and its like)

Needs psycopg 3 and a login with the role deed_worker. Replace handle() by your own. SIGTERM or Ctrl-C ends it when
the batch in hand is done; with --until-empty it ends when there is nothing to claim. The protocol, with what the
functions answer: docs/protocol.md.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time

import psycopg

BATCH = 100
LEASE = 30  # seconds; renewed while a batch is handled


def handle(message):
    """Do the message's work. An exception means: try it again later."""
    body = json.loads(message["payload"])
    if body.get("fail"):
        raise ValueError("this message asks to fail")
    print(message["message_id"], message["topic"], json.dumps(body), flush=True)


CLAIM = """
    select subscription, claim, id, message_id, topic, key, payload
    from deed.claim(%s, %s, %s, %s, p_lease => make_interval(secs => %s))
"""
EXTEND = "select deed.extend(%s, %s, %s, make_interval(secs => %s))"
FINISH = "select deed.finish(%s, %s, %s, p_failed => %s)"
FAIL = "select id, dead from deed.fail(%s, %s, %s, %s)"


def run(conn, *statements):
    """Run statements in one transaction with a deadline; returns the rows of the last one."""
    with conn.transaction():
        conn.execute("set local statement_timeout = '10s'")
        for sql, args in statements:
            rows = conn.execute(sql, args).fetchall()
    return rows


class Lease:
    """Keeps a batch claimed while it is handled, and knows what is still ours."""

    def __init__(self, conn, subscription, claim, ids):
        self.conn, self.subscription, self.claim = conn, subscription, claim
        self.held = set(ids)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.renew, daemon=True)

    def renew(self):
        while not self.over.wait(LEASE / 3):
            rows = run(self.conn, (EXTEND, (self.subscription, self.claim, list(self.held), LEASE)))
            self.held = set(rows[0][0])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def record(conn, subscription, claim, outcomes):
    """Record what became of messages: (id, error), None where they are done.

    Where somebody keeps one locked nothing is recorded (55P03): the halves are tried by themselves, so that the others
    do not wait for it. What is locked alone is tried again, and then left to its lease, which nobody renews any more.
    """
    end = time.monotonic() + LEASE / 2
    count = sum(error is not None for _, error in outcomes)  # for one receipt
    for pause in (0, 0.3, 1):
        time.sleep(pause)
        parts, outcomes = [outcomes] if outcomes else [], []
        while parts and time.monotonic() < end:
            part = parts.pop(0)
            done = [number for number, error in part if error is None]
            failed = [(number, error) for number, error in part if error is not None]
            statements = [(FINISH, (subscription, claim, done, count))] if done else []
            if failed:
                statements.append((FAIL, (subscription, claim, *map(list, zip(*failed)))))
            try:
                run(conn, *statements)
                count = 0 if done else count
            except psycopg.errors.LockNotAvailable:
                if len(part) > 1:
                    parts += [part[: len(part) // 2], part[len(part) // 2 :]]
                else:
                    outcomes += part
        outcomes += sum(parts, [])
        if not outcomes:
            return
    print("locked by somebody, left until the lease is over:", *(number for number, _ in outcomes), file=sys.stderr, flush=True)


def work(conn, topic, subscription, worker, stop):
    """Claim one batch and see it through; returns how many messages it had."""
    rows = run(conn, (CLAIM, (topic, worker, BATCH, subscription, LEASE)))
    if not rows:
        return 0
    number, claim = rows[0][0], rows[0][1]
    outcomes = []
    with Lease(conn, number, claim, [row[2] for row in rows]) as lease:
        for row in rows:
            if row[2] not in lease.held:
                continue  # another worker has it by now
            if stop.is_set():
                break  # what is left comes back when the lease is over
            try:
                handle(dict(zip(("message_id", "topic", "key", "payload"), row[3:])))
                outcomes.append((row[2], None))
            except Exception as error:  # pylint: disable=broad-except
                outcomes.append((row[2], f"{type(error).__name__}: {error}"))
    record(conn, number, claim, outcomes)
    return len(rows)


def main():
    parser = argparse.ArgumentParser(description="Handle a subscription's messages.")
    parser.add_argument("topic", help="the topic; '' with the subscription default: what nobody declared")
    parser.add_argument("subscription")
    parser.add_argument("--until-empty", action="store_true", help="end when there is nothing to claim")
    args = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    worker = f"python:{os.getpid()}"
    # Nothing is prepared: a pooler in transaction mode would not find it again.
    with psycopg.connect(os.environ.get("DATABASE_URL", ""), autocommit=True, prepare_threshold=None) as conn:
        while not stop.is_set():
            if work(conn, args.topic, args.subscription, worker, stop) == 0:
                if args.until_empty:
                    return
                stop.wait(0.2 + random.random() / 10)


if __name__ == "__main__":
    main()
