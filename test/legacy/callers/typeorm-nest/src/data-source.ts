import { DataSource } from 'typeorm';
import { BookingEntity } from './booking.entity.js';

export const dataSource = new DataSource({
  type: 'postgres',
  url: process.env['DATABASE_URL'] ?? '',
  entities: [BookingEntity],
  synchronize: true,
});
