-- deed.check_transition: the trigger through which every change of a delivery's
-- status goes, the owner's and superusers' too.
--
-- Allowed is what deed.delivery_transitions lists; what it reserves for a
-- person needs the transaction's setting deed.act to say so. Raises DDCON.
-- Of what is put back, or dead and may be, while its outcome is unknown it keeps
-- since when.
create or replace function deed.check_transition() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_from text := case when tg_op = 'INSERT' then '' else old.status end;
begin
  if not exists (
    select from deed.delivery_transitions t
    where t.from_status = v_from and t.to_status = new.status
      and (t.made_by = 'ledger' or current_setting('deed.act', true) = 'person')
  ) then
    raise exception 'delivery %: % may not become %', new.id,
      coalesce(nullif(v_from, ''), 'a new delivery'), new.status
      using errcode = 'DDCON', hint = 'deed.delivery_transitions lists the changes that there are.';
  end if;
  if v_from = 'sending' and new.status in ('queued', 'dead') and old.doubt_since is not null then
    new.unsettled_since := coalesce(old.unsettled_since, old.doubt_since);
  end if;
  return new;
end
$$;
