-- app.outbox_mark_delivered: finish claimed messages, the whole batch at once.
--
-- Only those whose claim is still the token's; returns how many they were, a
-- repeat after a lost answer included. Of a wrong or stale token: 0.
create or replace function app.outbox_mark_delivered(
  p_token uuid,
  p_ids   uuid[]
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return deed.finish_doors(p_token::text, array(select deed.message_seq(i.id) from unnest(p_ids) i(id)), p_ids);
end
$$;
