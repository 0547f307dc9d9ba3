-- Puts the complete copy in the place of `orders`, with the views, privileges, owner and names of the former table.
DO $$
DECLARE
    changes   text[];
    renamings text[];
    step      text;
    renamed   record;
BEGIN
    LOCK TABLE orders IN ACCESS EXCLUSIVE MODE;

    -- Read while the names still lead to the former table. A view is replaced, so it keeps its own privileges.
    SELECT array_agg(change) INTO changes FROM (
        SELECT format('CREATE OR REPLACE VIEW %s%s AS %s', viewed.oid::regclass,
                      ' WITH (' || array_to_string(viewed.reloptions, ', ') || ')', pg_get_viewdef(viewed.oid)) AS change
        FROM pg_class AS viewed
        WHERE relkind = 'v' AND oid IN (
            SELECT ev_class FROM pg_depend JOIN pg_rewrite ON pg_rewrite.oid = objid
            WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = 'orders'::regclass)
        UNION ALL
        SELECT format('GRANT %s%s ON orders TO %s%s', privilege_type, ' (' || quote_ident(attname) || ')',
                      CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
                      CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
        FROM (SELECT NULL AS attname, relowner, acl.*
              FROM pg_class, aclexplode(relacl) AS acl WHERE oid = 'orders'::regclass
              UNION ALL
              SELECT attname, relowner, acl.*
              FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid, aclexplode(attacl) AS acl
              WHERE pg_class.oid = 'orders'::regclass AND NOT attisdropped) AS granted
        WHERE grantee <> relowner
        UNION ALL
        SELECT format('COMMENT ON TABLE orders IS %L', obj_description('orders'::regclass, 'pg_class'))
    ) AS all_changes;

    -- An index that an operator has created keeps its name.
    SELECT array_agg(format('ALTER INDEX %s RENAME TO %I', copied.indexrelid::regclass, relname)) INTO renamings
    FROM pg_index AS former JOIN pg_class ON pg_class.oid = former.indexrelid, pg_index AS copied
    WHERE former.indrelid = 'orders'::regclass AND NOT former.indisprimary AND copied.indrelid = 'orders_copy'::regclass
      AND regexp_replace(pg_get_indexdef(former.indexrelid), '^.*? USING ', '')
        = regexp_replace(pg_get_indexdef(copied.indexrelid), '^.*? USING ', '');

    FOR renamed IN
        SELECT table_class.oid::regclass AS name, owner
        FROM pg_class AS table_class, (SELECT relowner AS owner FROM pg_class WHERE oid = 'orders'::regclass) AS former
        WHERE relowner <> owner AND (table_class.oid = 'orders_copy'::regclass OR table_class.oid IN (
            SELECT inhrelid FROM pg_inherits WHERE inhparent = 'orders_copy'::regclass))
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %s', renamed.name, renamed.owner::regrole);
    END LOOP;

    DROP TRIGGER repeat_in_orders_copy ON orders;
    DROP TRIGGER truncate_orders_copy ON orders;
    DROP FUNCTION repeat_in_orders_copy();
    ALTER TABLE orders RENAME TO former_orders;
    ALTER TABLE orders_copy RENAME TO orders;
    FOREACH step IN ARRAY changes LOOP
        EXECUTE step;
    END LOOP;
    DROP TABLE former_orders;
    FOREACH step IN ARRAY coalesce(renamings, '{}') LOOP
        EXECUTE step;
    END LOOP;
    FOR renamed IN
        WITH tables AS (
            SELECT 'orders'::regclass::oid AS oid
            UNION ALL
            SELECT inhrelid FROM pg_inherits WHERE inhparent = 'orders'::regclass
        )
        SELECT pg_class.oid::regclass AS name, CASE relkind WHEN 'r' THEN 'TABLE' ELSE 'INDEX' END AS kind,
               overlay(relname PLACING 'orders' FROM 1 FOR length('orders_copy')) AS new_name
        FROM pg_class
        WHERE relname LIKE 'orders\_copy%' AND oid IN (
            SELECT oid FROM tables UNION ALL SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT oid FROM tables))
    LOOP
        EXECUTE format('ALTER %s %s RENAME TO %I', renamed.kind, renamed.name, renamed.new_name);
    END LOOP;
END
$$
