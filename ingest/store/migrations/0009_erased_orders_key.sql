-- compatible with: 4
-- contracts
-- The index is already built, so this only holds its lock for a moment.
ALTER TABLE erased_orders
    DROP CONSTRAINT erased_orders_pkey,
    ADD CONSTRAINT erased_orders_pkey PRIMARY KEY USING INDEX erased_orders_source_order_id;
