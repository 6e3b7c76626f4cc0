import { AmqpConnection } from '@golevelup/nestjs-rabbitmq';
import { BookingsService } from './bookings.service.js';
import { dataSource } from './data-source.js';

const amqp = new AmqpConnection({
  uri: process.env['AMQP_URL'] ?? '',
  exchanges: [{ name: 'hotel', type: 'topic' }],
});
await amqp.init();
await dataSource.initialize();
const service = new BookingsService(dataSource, amqp);
const booking = await service.book('ada', 7);
await service.pay(booking.id);
await service.cancel(booking.id);
await amqp.close();
await dataSource.destroy();
