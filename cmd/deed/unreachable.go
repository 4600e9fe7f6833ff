package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// layers are what a connection was to be made for, which says nothing to whom it
// concerns.
var layers = regexp.MustCompile(`(deed: )?((new|schema|read deed\.migrations|connect): )*$`)

// unreachable is the text of an error of a connection that was not made: which
// database it was to be, why, and what to do. The driver's own says it once for each
// address. Of any other error it is the error's.
func unreachable(err error) string {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err.Error()
	}
	before, after, found := strings.Cut(err.Error(), failed.Error())
	if !found {
		return err.Error()
	}
	c := failed.Config
	why, do := whyUnreachable(failed)
	text := fmt.Sprintf("cannot connect to the database %q as %q at %s%s: %s", c.Database, c.User, place(c.Host, c.Port), otherPlaces(c), why)
	if do != "" {
		text += "; " + do
	}
	return layers.ReplaceAllString(before, "") + text + after
}

func place(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return fmt.Sprintf("the socket in %s, port %d", host, port)
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}

// otherPlaces are those that were tried after the first, where they are others.
func otherPlaces(c *pgconn.Config) (text string) {
	seen := map[string]bool{place(c.Host, c.Port): true}
	for _, f := range c.Fallbacks {
		if at := place(f.Host, f.Port); !seen[at] {
			seen[at] = true
			text += " or " + at
		}
	}
	return text
}

// whyUnreachable is the reason in a few words, and what to do about it if that is
// known.
func whyUnreachable(err error) (why, do string) {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Message, map[string]string{
			"3D000": "create it, or name another (createdb makes one)",
			"28P01": "look at the user and the password",
			"28000": "look at the user, and at the server's pg_hba.conf",
			"53300": "raise max_connections, or end some: each relay has a pool of its own",
			"57P03": "try again in a moment",
		}[pg.Code]
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case isDNS:
		return fmt.Sprintf("there is no host %q", dns.Name), "look at the name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", "is PostgreSQL running there?"
	case errors.Is(err, syscall.ENOENT):
		return "there is no such socket", "is PostgreSQL running here, with its socket in that directory?"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time", "is a firewall between, or the server overloaded?"
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n") // one for each address
	return strings.TrimSpace(lines[len(lines)-1]), ""
}
