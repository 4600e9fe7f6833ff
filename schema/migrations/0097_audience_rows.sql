-- breaking: no
-- How many rows of its source an audience has been loaded from, and how many of these are not in
-- it: who is interrupted goes on behind them.
alter table deed.audiences
  add column rows_read bigint not null default 0,
  add column left_out bigint not null default 0,
  add constraint audiences_rows_are_counts check (left_out between 0 and rows_read);
