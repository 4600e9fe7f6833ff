-- breaking: no
-- What ends deliveries says what they were, and their ids, for the log.
drop function if exists deed.settle(uuid[], bigint[], text[], text[], text[], float8[], text, interval, float8[], int, interval, interval);
drop function if exists deed.expire_deliveries(int, text);
drop function if exists deed.give_up_deliveries(text, interval, int, text);
drop function if exists deed.prove_delivery(uuid, text, text);
