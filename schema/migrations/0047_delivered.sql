-- breaking: no
-- What was delivered is added up, so that a look need not count it.

-- Of which topics a receipt's messages are, and how many of each, where nobody
-- declared them; null: of a declared one, or recorded by an older deed.
alter table deed.receipts add column topics jsonb;

-- What was delivered to each subscription, by topic for the subscription 0, as far
-- as receipts are added up; when the last of it was.
create table deed.delivered (
  subscription int         not null,
  topic        text        not null default '',
  delivered    bigint      not null,
  last_at      timestamptz not null,
  constraint delivered_pkey primary key (subscription, topic),
  constraint delivered_is_count check (delivered >= 0)
) with (fillfactor = 50);

-- Receipts are added up to upto_n. The next to be are those up to noted_n, once every
-- transaction below noted_xid has ended: until then one of a lower number may come.
create table deed.tallied (
  is_only   boolean not null default true,
  upto_n    bigint  not null default 0,
  noted_n   bigint  not null default 0,
  noted_xid xid8,
  constraint tallied_pkey primary key (is_only),
  constraint tallied_is_one_row check (is_only),
  constraint tallied_goes_forward check (noted_n >= upto_n)
) with (fillfactor = 50);

insert into deed.tallied default values;

do $$
declare
  v_table text;
begin
  foreach v_table in array array['delivered', 'tallied'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;
