ALTER TABLE orders
    ADD COLUMN attributes jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN document   jsonb;

COMMENT ON COLUMN orders.attributes IS 'Whatever else a mapping or a transform keeps of the order.';
COMMENT ON COLUMN orders.document IS 'The document as fetched or pushed, where INGEST_KEEP_DOCUMENT is on.';

-- A quantity may be fractional. A view's column cannot change its type: the view is created again, with its privileges.
DO $$
DECLARE
    grants text[];
    statement text;
BEGIN
    SELECT array_agg(format(
               'GRANT %s ON order_lines TO %s%s',
               acl.privilege_type,
               CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END,
               CASE WHEN acl.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END))
    INTO grants
    FROM pg_class, aclexplode(relacl) AS acl
    WHERE pg_class.oid = 'order_lines'::regclass AND acl.grantee <> relowner;

    DROP VIEW order_lines;

    CREATE VIEW order_lines AS
    SELECT o.order_id,
           l.line_no::integer AS line_no,
           l.line ->> 'sku' AS sku,
           l.line ->> 'description' AS description,
           (l.line ->> 'quantity')::numeric AS quantity,
           (l.line ->> 'unit_price')::numeric AS unit_price,
           (l.line ->> 'quantity')::numeric * (l.line ->> 'unit_price')::numeric AS amount
    FROM orders AS o
    CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l (line, line_no);

    FOREACH statement IN ARRAY coalesce(grants, '{}') LOOP
        EXECUTE statement;
    END LOOP;
END
$$;
