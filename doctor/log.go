package doctor

import (
	"context"
	"fmt"
)

func checkPartitions(ctx context.Context, e *exam) error {
	for _, table := range []struct{ query, subject, what string }{
		{query.Partitions, "deed.log", "partitions of the log"},
		{query.RunPartitions, "deed.run_log", "partitions of the logs of runs, of a week each,"},
	} {
		var ahead int
		var age float64
		if err := e.queryRow(ctx, table.query, nil, &ahead, &age); err != nil {
			return err
		}
		level := OK
		switch {
		case ahead < 1:
			level = Fail
		case ahead < 2:
			level = Warn
		}
		remedy := ""
		if level != OK {
			remedy = "start a relay, or, as deed_worker: select deed.keep_partitions(); if one runs, its log says why not (\"make partitions ahead\")"
		}
		e.addf(level, "partitions-ahead", table.subject, remedy,
			"%d %s are ahead of the one in use, of two that relays keep; the last was made %s ago", ahead, table.what, ago(age))
	}
	return nil
}

func checkSequence(ctx context.Context, e *exam) error {
	var cache, increment, seen int64
	var last *int64
	var cycles bool
	if err := e.queryRow(ctx, query.Sequence, nil, &cache, &cycles, &increment, &last, &seen); err != nil {
		return err
	}
	const name, subject = "log-sequence", "deed.log_seq"
	if cache != 1 || cycles || increment != 1 {
		e.addf(Fail, name, subject, "alter sequence deed.log_seq cache 1 no cycle increment 1;",
			"the sequence has cache %d, increment %d, cycle %t; windows of the log need 1, 1 and false, or messages are missed", cache, increment, cycles)
	}
	switch {
	case last == nil:
		e.addf(Fail, name, subject, fmt.Sprintf("grant usage on sequence deed.log_seq to %s;", e.login),
			"the sequence has no value, or this login may not read it")
	case *last < seen:
		e.addf(Fail, name, subject, fmt.Sprintf("stop the publishers, then: select setval('deed.log_seq', %d); deed verify", seen+1),
			"the sequence went back: it is at %d, and %d was reached before; new messages are given numbers that were used", *last, seen)
	}
	return nil
}

func checkCluster(ctx context.Context, e *exam) error {
	var why string
	if err := e.queryRow(ctx, query.Cluster, []any{e.opts.Environment}, &why); err != nil {
		return err
	}
	if why != "" {
		e.addf(Warn, "cluster-changed", "deed.settings", "if this is a copy, let it hold, or it delivers what the original delivers; if it took the original's place: deed adopt --yes --reason …",
			"%s; relays with deliveries, webhooks, sources, links, campaigns or steps of runs hold", why)
	}
	return nil
}
