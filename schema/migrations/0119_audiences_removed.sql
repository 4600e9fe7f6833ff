-- breaking: no
-- An audience whose load was given up may be removed (deed.remove_audience): nobody goes on loading it meanwhile.
alter table deed.audiences
  drop constraint audiences_status_is_known,
  add constraint audiences_status_is_known check (status in ('loading', 'ready', 'removing')) not valid;
alter table deed.audiences validate constraint audiences_status_is_known;
