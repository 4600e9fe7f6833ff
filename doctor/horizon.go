package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A holder is a session, prepared transaction, slot or standby because of which
// vacuum may not remove rows that died after it began.
type holder struct {
	kind        string // session, prepared, slot or standby
	pid         int    // 0: none
	name        string // of a prepared transaction or a slot
	database    string
	login       string
	application string
	state       string
	open, last  *float64 // seconds since it began, and since its last statement began
	behind      int64    // how many transactions ago
	xid         int64
	explained   bool // its snapshot lists a writer, which may be all that is old about it
	guessed     bool // open is by the log, and at least that
}

func checkHorizon(ctx context.Context, e *exam) error {
	var holders []holder
	err := e.query(ctx, query.Horizon, nil, func(row pgx.Rows) error {
		var h holder
		err := row.Scan(&h.kind, &h.pid, &h.name, &h.database, &h.login, &h.application, &h.state, &h.open, &h.last, &h.behind, &h.xid, &h.explained)
		holders = append(holders, h)
		return err
	})
	if err != nil {
		return err
	}
	for _, h := range holders {
		if h.open == nil && !h.explained && e.installed && e.reads {
			if err := h.guess(ctx, e); err != nil {
				return err
			}
		}
		long := h.open != nil && *h.open > e.opts.Long.Seconds()
		if long || h.behind > e.opts.OldXIDs && !h.explained {
			e.add(h.finding())
		}
	}
	return nil
}

// guess asks the log how old the holder is, where the server does not tell.
func (h *holder) guess(ctx context.Context, e *exam) error {
	var age float64
	err := e.queryRow(ctx, query.PublishedSince, []any{fmt.Sprint(h.xid)}, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // nothing was published since
	}
	h.open, h.guessed = &age, true
	return err
}

func (h *holder) finding() Finding {
	f := Finding{Name: "horizon-" + h.kind, Level: Warn}
	what := "dead rows of all tables"
	switch h.kind {
	case "prepared":
		f.Subject = h.name
		f.Remedy = fmt.Sprintf("in database %s: commit prepared %s; or rollback prepared %[2]s;", h.database, literal(h.name))
	case "slot":
		f.Subject = h.name
		f.Remedy = fmt.Sprintf("let its consumer catch up, or, if it has none any more: select pg_drop_replication_slot(%s);", literal(h.name))
		if strings.HasSuffix(h.state, "of catalogs only") {
			what = "dead rows of the catalogs"
		}
	case "standby":
		f.Subject = fmt.Sprintf("pid %d (%s)", h.pid, unnamed(h.application))
		f.Remedy = "end the long queries of the standby, or set hot_standby_feedback = off there"
	default:
		f.Subject = fmt.Sprintf("pid %d (%s)", h.pid, unnamed(h.application))
		f.Remedy = fmt.Sprintf("end it in the application, or: select pg_terminate_backend(%d);", h.pid)
	}
	f.Detail = fmt.Sprintf("keeps vacuum from removing %s: %s", what, h.describe())
	return f
}

func (h *holder) describe() string {
	var parts []string
	switch {
	case h.open == nil:
		parts = append(parts, "for how long is not known")
	case h.guessed:
		parts = append(parts, "for "+ago(*h.open)+" or more, by the messages published since")
	default:
		parts = append(parts, "for "+ago(*h.open))
	}
	parts = append(parts, fmt.Sprintf("%d transactions behind", h.behind))
	if h.last != nil && h.kind == "session" {
		parts = append(parts, "last statement "+ago(*h.last)+" ago")
	}
	for _, p := range []struct{ what, value string }{{"", h.state}, {"login ", h.login}, {"database ", h.database}} {
		if p.value != "" {
			parts = append(parts, p.what+p.value)
		}
	}
	if h.kind == "slot" && h.pid != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", h.pid))
	}
	return strings.Join(parts, ", ")
}

func checkPublishers(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Publishers, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var pid int
		var gid, application, login, state string
		var open float64
		if err := row.Scan(&pid, &gid, &application, &login, &state, &open); err != nil {
			return err
		}
		subject := fmt.Sprintf("pid %d (%s)", pid, unnamed(application))
		remedy := fmt.Sprintf("let it commit; or, which loses what it has published: select pg_terminate_backend(%d);", pid)
		if gid != "" {
			subject, state = gid, "prepared"
			remedy = fmt.Sprintf("commit prepared %s; or, which loses what it has published: rollback prepared %[1]s;", literal(gid))
		}
		e.addf(Warn, "late-publisher", subject, remedy,
			"has published and not committed for %s (%s, login %s): its messages come late, all others are delivered", ago(open), state, login)
		return nil
	})
}

func unnamed(application string) string {
	if application == "" {
		return "unnamed"
	}
	return application
}

// literal quotes text for statements that people run.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
