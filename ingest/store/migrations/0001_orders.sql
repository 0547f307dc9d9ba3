CREATE TABLE orders (
    order_id    text COLLATE "C" PRIMARY KEY,
    status      text NOT NULL,
    currency    text NOT NULL,
    customer_id text,
    country     text,
    placed_at   timestamptz NOT NULL,
    updated_at  timestamptz,
    line_count  integer NOT NULL,
    total       numeric NOT NULL,
    lines       jsonb NOT NULL,
    version     timestamptz NOT NULL,
    fetched_at  timestamptz NOT NULL,
    attempts    integer NOT NULL,
    enqueued_at timestamptz NOT NULL,
    ingested_at timestamptz NOT NULL
);

COMMENT ON TABLE orders IS 'Every order, once, as the external API last described it.';
COMMENT ON COLUMN orders.total IS 'Sum of quantity times unit price over all lines, exact.';
COMMENT ON COLUMN orders.lines IS 'The lines as fetched; prices are strings. See the view order_lines.';
COMMENT ON COLUMN orders.version IS 'updated_at, or else the time of the fetch; an older version never replaces a newer one.';
COMMENT ON COLUMN orders.fetched_at IS 'When this content was fetched; decides between equal versions.';
COMMENT ON COLUMN orders.attempts IS 'Attempts that the last change of this row took.';
COMMENT ON COLUMN orders.enqueued_at IS 'When the order of the last change was announced.';
COMMENT ON COLUMN orders.ingested_at IS 'When this row last changed, by the database''s clock.';

CREATE TABLE erased_orders (
    order_id  text COLLATE "C" PRIMARY KEY,
    erased_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE erased_orders IS 'Orders that were erased for good; they are not stored again.';

CREATE VIEW order_lines AS
SELECT o.order_id,
       l.line_no::integer AS line_no,
       l.line ->> 'sku' AS sku,
       l.line ->> 'description' AS description,
       (l.line ->> 'quantity')::bigint AS quantity,
       (l.line ->> 'unit_price')::numeric AS unit_price,
       (l.line ->> 'quantity')::numeric * (l.line ->> 'unit_price')::numeric AS amount
FROM orders AS o
CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l (line, line_no);
