import { EntitySchema } from 'typeorm';

export interface Booking {
  id: number;
  guest: string;
  room: number;
  paid: boolean;
}

export const BookingEntity = new EntitySchema<Booking>({
  name: 'bookings',
  columns: {
    id: { type: 'int', primary: true, generated: true },
    guest: { type: 'text' },
    room: { type: 'int' },
    paid: { type: 'boolean', default: false },
  },
});
