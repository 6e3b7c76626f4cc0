import 'reflect-metadata';
import { AmqpConnection } from '@golevelup/nestjs-rabbitmq';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { BookingsService } from './bookings.service.js';

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['error', 'warn'] });
const service = app.get(BookingsService);
const booking = await service.book('ada', 7);
await service.pay(booking.id);
await service.cancel(booking.id);
// `cancel` does not wait, and a close throws away what is not confirmed by then.
await app.get(AmqpConnection).channel.waitForConfirms();
await app.close();
