package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// checkLogin learns what the login is, for the other checks too.
func checkLogin(ctx context.Context, e *exam) error {
	var super, bypasses, operates, publishes, member, owns bool
	err := e.queryRow(ctx, query.Login, nil, &e.login, &super, &bypasses, &operates, &publishes, &member, &owns, &e.monitors, &e.installed)
	if err != nil {
		return err
	}
	e.reads = operates || owns
	switch {
	case super:
		e.addf(Warn, "login-superuser", e.login, "connect as a plain login that holds deed_app, deed_worker or deed_admin",
			"this login is a superuser, whom no row-level security holds")
	case bypasses:
		e.addf(Warn, "login-superuser", e.login, fmt.Sprintf("alter role %s nobypassrls;", e.login),
			"this login has BYPASSRLS: row-level security does not hold it")
	}
	grant := fmt.Sprintf("grant deed_worker to %s; -- or deed_admin, to operate", e.login)
	switch {
	case e.reads:
	case publishes:
		e.addf(Warn, "login-grant", e.login, grant, "this login holds deed_app alone: it may publish, and neither relay nor operate")
	case member:
		e.addf(Fail, "login-grant", e.login, fmt.Sprintf("alter role %s inherit; -- from PostgreSQL 16 on, grant the role again with inherit true", e.login),
			"this login is a member of a role of deed and does not inherit it: it may do nothing, as deed never uses SET ROLE")
	default:
		e.addf(Fail, "login-grant", e.login, grant, "this login holds none of deed_app, deed_worker and deed_admin: a relay or operator can do nothing with it")
	}
	if !e.monitors {
		e.addf(Warn, "hidden-sessions", e.login, fmt.Sprintf("grant pg_monitor to %s;", e.login),
			"PostgreSQL hides from this login since when other logins' sessions are at what; long transactions may go unseen")
	}
	return nil
}

func checkRoles(ctx context.Context, e *exam) error {
	err := e.query(ctx, query.Roles, nil, func(row pgx.Rows) error {
		var name, holds string
		var exists, logsIn, bypasses bool
		if err := row.Scan(&name, &exists, &logsIn, &bypasses, &holds); err != nil {
			return err
		}
		if !exists {
			e.addf(Fail, "roles", name, "deed migrate up, as a login that may create roles", "the role %s does not exist", name)
			return nil
		}
		if bypasses {
			e.addf(Fail, "roles", name, fmt.Sprintf("alter role %s nosuperuser nobypassrls;", name),
				"the role %s goes past row-level security", name)
		}
		if logsIn {
			e.addf(Warn, "roles", name, fmt.Sprintf("alter role %s nologin; -- and grant it to logins of your own", name),
				"the role %s can log in; it is meant to be granted to logins", name)
		}
		if holds != "" {
			e.addf(Fail, "roles", name, fmt.Sprintf("revoke %s from %s;", holds, name),
				"the role %s is a member of %s, so whoever holds the one holds the other", name, holds)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.query(ctx, query.SuperuserLogins, nil, func(row pgx.Rows) error {
		var login, holds string
		var super bool
		if err := row.Scan(&login, &super, &holds); err != nil {
			return err
		}
		what := "has BYPASSRLS"
		if super {
			what = "is a superuser"
		}
		e.addf(Warn, "superuser-logins", login, fmt.Sprintf("alter role %s nosuperuser nobypassrls;", login),
			"the login %s holds %s and %s: row-level security does not hold it", login, holds, what)
		return nil
	})
}
