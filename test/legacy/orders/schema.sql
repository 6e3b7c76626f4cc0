create table if not exists orders (
  id integer generated always as identity primary key,
  email text not null,
  locale text not null default 'en',
  status text not null default 'placed' check (status in ('placed', 'paid', 'shipped', 'cancelled', 'refunded')),
  total_cents integer not null check (total_cents >= 0),
  parcel text,
  reminder_at timestamptz,
  review_requested boolean not null default false,
  receipt_resent_at timestamptz,
  note text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

create table if not exists order_lines (
  order_id integer not null references orders (id),
  line integer not null,
  sku text not null,
  quantity integer not null check (quantity > 0),
  price_cents integer not null check (price_cents >= 0),
  primary key (order_id, line)
);
