import { RabbitMQModule } from '@golevelup/nestjs-rabbitmq';
import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { BookingEntity } from './booking.entity.js';
import { BookingsService } from './bookings.service.js';

@Module({
  imports: [
    TypeOrmModule.forRoot({
      type: 'postgres',
      url: process.env['DATABASE_URL'] ?? '',
      entities: [BookingEntity],
      synchronize: true,
    }),
    TypeOrmModule.forFeature([BookingEntity]),
    RabbitMQModule.forRoot({
      uri: process.env['AMQP_URL'] ?? '',
      exchanges: [{ name: 'hotel', type: 'topic' }],
      connectionInitOptions: { wait: true },
    }),
  ],
  providers: [BookingsService],
})
export class AppModule {}
