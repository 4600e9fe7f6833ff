-- breaking: no
-- Replaced by one that goes round the tenants.
drop function if exists deed.ripen(text, text);
