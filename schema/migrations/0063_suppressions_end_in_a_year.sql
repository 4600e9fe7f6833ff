-- breaking: no
-- A suppression ends in a year that programs can write, as a delivery does. 0131 looks at what there is: the lock
-- that this takes nobody can read beside.
update deed.suppressions set expires_at = '9999-12-31Z' where expires_at >= '10000-01-01Z';
alter table deed.suppressions add constraint suppressions_end_in_a_year check (expires_at < '10000-01-01Z') not valid;
