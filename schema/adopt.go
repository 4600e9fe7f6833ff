package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Takeover says how a table that has the name of a face's relation is adopted.
type Takeover struct {
	// Topics gives messages other topics than their rows', by the rows'.
	Topics map[string]string

	// Unfit, if not nil, is told of every row that cannot be published.
	Unfit func(UnfitRow)
}

// An UnfitRow is an undelivered row that cannot be published, and why.
type UnfitRow struct{ Table, ID, Topic, Problem string }

// makeRoom sees that nothing of the face's names is in the way: it refuses, or
// takes over what is there, if that was asked for. It returns the new name of
// the table that was there, if one was.
func (f face) makeRoom(ctx context.Context, tx pgx.Tx, adopt *Takeover) (*string, error) {
	var kind string
	err := tx.QueryRow(ctx, `
		select coalesce((select c.relkind::text from pg_catalog.pg_class c where c.oid = to_regclass($1)), '')
	`, f.relation).Scan(&kind)
	if err != nil {
		return nil, err
	}
	var others string
	err = tx.QueryRow(ctx, `
		select coalesce(string_agg(f.oid::regprocedure::text, ', ' order by f.oid), '')
		from pg_catalog.pg_proc f
		join pg_catalog.pg_namespace n on n.oid = f.pronamespace
		where n.nspname || '.' || f.proname = any ($1)
	`, f.functions()).Scan(&others)
	if err != nil {
		return nil, err
	}
	switch {
	case kind != "" && kind != "r" && kind != "p":
		return nil, fmt.Errorf("%s exists and is no table; rename or drop it", f.relation)
	case kind != "" && f.open == "":
		return nil, fmt.Errorf("the table %s exists; rename it, and bring its rows over through the face, by insert into %s … select", f.relation, f.relation)
	case kind != "" && adopt == nil:
		return nil, fmt.Errorf("the table %s exists; --adopt takes it over: it is renamed, and its undelivered rows are moved into deed", f.relation)
	case others != "" && adopt == nil:
		return nil, fmt.Errorf("functions of the face's names exist; --adopt replaces them: %s", others)
	}
	if others != "" {
		if _, err := tx.Exec(ctx, `drop function `+others); err != nil {
			return nil, err
		}
	}
	if kind == "" {
		return nil, nil
	}
	return f.setAside(ctx, tx, adopt)
}

// setAside renames the table of the relation's name, if its rows can be moved. They are looked
// at twice: before, so that a refusal has held up nobody, and once nobody writes to the table any more.
func (f face) setAside(ctx context.Context, tx pgx.Tx, adopt *Takeover) (*string, error) {
	var missing string
	err := tx.QueryRow(ctx, `
		select coalesce(string_agg(w.name, ', '), '')
		from unnest($2::text[]) w(name)
		where not exists (
		  select from pg_catalog.pg_attribute a
		  where a.attrelid = to_regclass($1) and a.attname = w.name and a.attnum > 0 and not a.attisdropped
		)
	`, f.relation, f.needs).Scan(&missing)
	if err != nil {
		return nil, err
	}
	if missing != "" {
		return nil, fmt.Errorf("the table %s lacks the columns %s: it is not one that can be adopted; rename it", f.relation, missing)
	}
	if err := f.checkRows(ctx, tx, f.relation, adopt); err != nil {
		return nil, err
	}
	schemaName, table, _ := strings.Cut(f.relation, ".")
	var aside string
	err = tx.QueryRow(ctx, `
		select n.name
		from (
		  select i, $2 || '_adopted_' || to_char(clock_timestamp(), 'YYYYMMDD') || case when i > 1 then '_' || i else '' end as name
		  from generate_series(1, 1000) i
		) n
		where to_regclass($1 || '.' || n.name) is null
		order by n.i
		limit 1
	`, schemaName, table).Scan(&aside)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `alter table `+f.relation+` rename to `+aside); err != nil {
		return nil, err
	}
	aside = schemaName + "." + aside
	return &aside, f.checkRows(ctx, tx, aside, adopt)
}

// checkRows tells of every undelivered row of the table that cannot be published, by the rules
// that publishers are held to: what deed.publish_problems says, and what
// deed.publish_many raises itself, of times, aggregate types and removed tenants; and of what deed.adopt
// could not read, where the table's columns are of other types.
func (f face) checkRows(ctx context.Context, tx pgx.Tx, table string, adopt *Takeover) error {
	rows, err := tx.Query(ctx, `
		select b.ids[q.ordinal], b.olds[q.ordinal], q.problem
		from (
		  select array_agg(r.id) as ids, array_agg(r.topic) as olds, array_agg(coalesce($1::jsonb ->> r.topic, r.topic)) as topics,
		    array_agg(convert_to(r.payload, 'UTF8')) as payloads, array_agg(r.key) as keys, array_agg(null::text) as nothing,
		    array_agg(jsonb_build_object('outbox-id', r.id)) as headers, array_agg(r.problem) as problems
		  from (
		    select coalesce(o.row ->> 'id', '') as id, coalesce(o.row ->> 'topic', o.row ->> 'event_type', '') as topic,
		      (o.row -> 'payload')::text as payload, o.row ->> 'aggregate_id' as key, (row_number() over () - 1) / 20 as batch,
		      coalesce((
		        select format('%s %s is infinite or out of range', c.name, o.row ->> c.name)
		        from (values
		          ('created_at', '1970-01-01Z'::timestamptz, '10000-01-01Z'::timestamptz),
		          ('process_after', '-infinity', '10000-01-01Z'),
		          ('claimed_at', '-infinity', '9999-12-31Z') -- five minutes are added to it
		        ) c(name, since, before)
		        cross join lateral (select (o.row ->> c.name)::timestamptz as at) v
		        where not isfinite(v.at) or v.at < c.since or v.at >= c.before
		        limit 1
		      ), case when octet_length(o.row ->> 'aggregate_type') > 1000
		        then format('aggregate type of %s bytes is over the limit of 1000', octet_length(o.row ->> 'aggregate_type')) end, (
		        select format('tenant %s was removed', r.tenant_id) from deed.tenant_removals r where r.tenant_id::text = lower(o.row ->> 'tenant_id')
		      ), case when o.row ->> 'tenant_id' !~* '^([0-9a-f]{4}-?){7}[0-9a-f]{4}$' and not (o.row ->> 'tenant_id' = '' and (select s.single_tenant from deed.settings s))
		        then format('tenant_id "%s" is no UUID', left(o.row ->> 'tenant_id', 100)) end, (
		        select format('%s %s is no number of attempts', case when o.row ->> 'attempts' is null then 'retry_count' else 'attempts' end, left(v.tries, 100))
		        from (select coalesce(o.row ->> 'attempts', o.row ->> 'retry_count') as tries) v
		        where case when v.tries !~ '^[+-]?[0-9]{1,20}$' then true else v.tries::numeric not between -2147483648 and 2147483646 end
		      )) as problem
		    from (select to_jsonb(t) as row from `+table+` t where t.`+f.open+` is null) o
		  ) r
		  group by r.batch
		) b
		cross join lateral (
		  select distinct on (u.ordinal) u.ordinal, u.problem
		  from (
		    select p.ordinal, p.problem
		    from deed.publish_problems(b.topics, b.payloads, b.keys, b.nothing, b.nothing, b.headers, b.nothing) p
		    union all
		    select n, b.problems[n] from generate_subscripts(b.problems, 1) n where b.problems[n] is not null
		  ) u
		) q
	`, adopt.Topics)
	if err != nil {
		return err
	}
	var count int64
	var row UnfitRow
	_, err = pgx.ForEachRow(rows, []any{&row.ID, &row.Topic, &row.Problem}, func() error {
		count++
		if adopt.Unfit != nil {
			row.Table = f.relation
			adopt.Unfit(row)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if count > 0 {
		return fmt.Errorf("%d undelivered rows of %s cannot be published, the last of them with the id %s: %s; nothing was changed: "+
			"mend or mark them, or give their topic another name with --topic OLD=NEW", count, f.relation, row.ID, row.Problem)
	}
	return nil
}

// An Adoption is the moving of a table's undelivered rows into the log.
type Adoption struct {
	Face  string
	Table string // as it is named now; what was delivered stays in it
	Moved int64
}

// Adopt moves what adopted tables still have undelivered, oldest first, in
// transactions of some hundred rows; cut off at any point, it goes on where it
// was when it is called again. progress, if not nil, is told of each step.
func Adopt(ctx context.Context, conn *pgx.Conn, progress func(Adoption)) ([]Adoption, error) {
	have, err := InstalledFaces(ctx, conn)
	if err != nil {
		return nil, err
	}
	var list []Adoption
	for _, i := range have {
		if i.Adopting == "" {
			continue
		}
		a := Adoption{Face: i.Name, Table: i.Adopting}
		for {
			const step = 500
			var moved int
			err := inTx(ctx, conn, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, `select deed.adopt($1, $2)`, i.Name, step).Scan(&moved)
			})
			if err != nil {
				return list, fmt.Errorf("adopt %s: after %d rows: %w; what is moved is safe, run this again to go on", i.Adopting, a.Moved, err)
			}
			a.Moved += int64(moved)
			if progress != nil && moved > 0 {
				progress(a)
			}
			if moved < step {
				break
			}
		}
		list = append(list, a)
	}
	return list, nil
}
