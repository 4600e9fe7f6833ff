-- breaking: no
alter table deed.suppressions validate constraint suppressions_kept_is_whole;
