-- breaking: no
-- Which of two programs with the same migrations has the newer functions: the
-- row of the functions has the number of theirs.
alter table deed.migrations add column number int not null default 0;
