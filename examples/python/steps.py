#!/usr/bin/env python3
"""A worker in Python for steps of runs (kind: external): claims those of a queue, does them, says what came of them.

    DATABASE_URL=postgres://my_worker@localhost/shop steps.py QUEUE  (or PGHOST and its like)

Needs psycopg 3 and a login with the role deed_worker. Replace handle() by your own. It claims as many steps at once as it
has room for (--parallel). SIGTERM or Ctrl-C ends it when what is in hand is done; with --steps N it ends after N of
them. The protocol: docs/protocol.md.
"""

import argparse
import concurrent.futures
import os
import random
import signal
import threading
import time

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

LEASE = 30  # seconds; renewed while a step is done


class Failed(Exception):
    """The step has failed. not_done: it is known that nothing was done; retryable: another attempt may mend it."""

    def __init__(self, code, message, retryable=True, not_done=False):
        super().__init__(message)
        self.code, self.retryable, self.not_done = code, retryable, not_done


def handle(step):
    """Do the step's work, and return what later steps see of it, as JSON."""
    if step["input"].get("fail"):
        raise Failed("ASKED_TO_FAIL", "this step asks to fail", retryable=False)
    # Calls to the outside give step["idempotency_key"], by which the other end knows a repeat.
    return {"width": 2 * step["input"]["width"]}


CLAIM = "select * from deed.claim_external(%s, %s, %s, make_interval(secs => %s))"
EXTEND = "select deed.extend_external(%s, %s, %s, make_interval(secs => %s)) as until"
FINISH = "select deed.finish_external(%s, %s, %s, %s) as said"
FAIL = "select deed.fail_external(%s, %s, %s, %s, %s, p_retryable => %s, p_not_done => %s) as said"


class Database:
    """One connection for all threads, made again when it is lost. What was asked may be asked again: the answer is the same."""

    def __init__(self):
        self.conn, self.lock = None, threading.Lock()

    def ask(self, sql, args):
        for pause in (0.1, 0.3, 1, 3, None):
            try:
                with self.lock:
                    if self.conn is None or self.conn.closed:
                        # Nothing is prepared: a pooler in transaction mode would not find it again.
                        self.conn = psycopg.connect(os.environ.get("DATABASE_URL", ""), autocommit=True, prepare_threshold=None, row_factory=dict_row)
                    return self.conn.execute(sql, args).fetchall()
            except (psycopg.OperationalError, psycopg.errors.LockNotAvailable):
                if pause is None:
                    raise
                time.sleep(pause)


class Lease:
    """Keeps a step claimed while it is done, and knows whether it is still ours."""

    def __init__(self, db, place):
        self.db, self.place, self.held = db, place, True
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.renew, daemon=True)

    def renew(self):
        while self.held and not self.over.wait(LEASE / 3):
            self.held = self.db.ask(EXTEND, (*self.place, LEASE))[0]["until"] is not None

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def finish(db, place, output):
    """Say that the step is done. An output that is no JSON, or that the database refuses, fails it for good: no worker would tell it."""
    try:
        return db.ask(FINISH, (*place, Jsonb(output)))
    except (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError):
        raise  # it is the database's, whatever the output
    except Exception as error:  # pylint: disable=broad-except
        return fail(db, place, Failed("OUTPUT_REFUSED", f"what it returned cannot be stored: {error}", retryable=False))


def fail(db, place, error):
    """Say that the step has failed, in text that PostgreSQL takes."""
    code, message = (text.encode(errors="replace").decode().replace("\0", "?") for text in (error.code, str(error)))
    return db.ask(FAIL, (*place, code[:100], message, error.retryable, error.not_done))


def work(db, step):
    """See a step through that was claimed."""
    place = (step["run_id"], step["step_id"], step["claim"])
    try:
        with Lease(db, place):
            output = handle(step)
    except Failed as error:
        said = fail(db, place, error)
    except Exception as error:  # pylint: disable=broad-except
        said = fail(db, place, Failed(type(error).__name__, str(error)))
    else:
        said = finish(db, place, output)
    # lost: another worker has it, or the run has ended
    print(step["run_id"], step["step_id"], said[0]["said"], flush=True)


def main():
    parser = argparse.ArgumentParser(description="Do steps of runs, of a queue.")
    parser.add_argument("queue")
    parser.add_argument("--parallel", type=int, default=4, help="do so many at once")
    parser.add_argument("--steps", type=int, help="end after so many")
    args = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    db, running, left = Database(), set(), args.steps
    with concurrent.futures.ThreadPoolExecutor(args.parallel) as pool:
        while not stop.is_set() and (left is None or left > 0):
            # What is claimed is begun at once: a lease that nobody renews runs out.
            room = args.parallel - len(running) if left is None else min(args.parallel - len(running), left)
            steps = db.ask(CLAIM, (args.queue, f"python:{os.getpid()}", room, LEASE)) if room else []
            running |= {pool.submit(work, db, step) for step in steps}
            if left is not None:
                left -= len(steps)
            if len(steps) < room:
                stop.wait(0.2 + random.random() / 10)
            ended, running = concurrent.futures.wait(
                running, timeout=None if len(running) == args.parallel else 0, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for one in ended:
                one.result()  # what could not be told ends the worker


if __name__ == "__main__":
    main()
