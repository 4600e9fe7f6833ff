-- deed.due_unheld: whether something is due of providers that no hold keeps back
-- (deed.delivery_holds). It reads the index once for each tenant and run.
create or replace function deed.due_unheld(p_providers text[]) returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held     uuid[] := array(select h.run_id from deed.delivery_holds h);
  v_provider text;
  v_tenants  uuid[];
  v_tenant   uuid;
begin
  foreach v_provider in array p_providers loop
    v_tenant := null;
    loop
      v_tenants := deed.due_tenants(v_provider, 'queued', v_tenant, null, 1000);
      exit when cardinality(v_tenants) = 0;
      foreach v_tenant in array v_tenants loop
        if cardinality(deed.due_runs(v_provider, 'queued', v_tenant, null, null, 1, v_held)) > 0 then
          return true;
        end if;
      end loop;
    end loop;
  end loop;
  return false;
end
$$;
