import { AmqpConnection } from '@golevelup/nestjs-rabbitmq';
import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { DataSource, Repository } from 'typeorm';
import { type Booking, BookingEntity } from './booking.entity.js';

@Injectable()
export class BookingsService {
  constructor(
    @InjectRepository(BookingEntity) private readonly bookings: Repository<Booking>,
    private readonly dataSource: DataSource,
    private readonly amqp: AmqpConnection,
  ) {}

  async book(guest: string, room: number): Promise<Booking> {
    const booking = await this.dataSource.transaction(async (manager) => {
      const saved = await manager.save(BookingEntity, { guest, room });
      return saved as Booking;
    });
    await this.amqp.publish('hotel', 'booking.made', { id: booking.id, guest, room });
    return booking;
  }

  async pay(id: number): Promise<void> {
    const queryRunner = this.dataSource.createQueryRunner();
    await queryRunner.connect();
    await queryRunner.startTransaction();
    try {
      await queryRunner.manager.update(BookingEntity, id, { paid: true });
      await queryRunner.commitTransaction();
    } catch (error) {
      await queryRunner.rollbackTransaction();
      throw error;
    } finally {
      await queryRunner.release();
    }
    await this.amqp.publish('hotel', 'booking.paid', { id }, { messageId: `booking-${id}-paid` });
  }

  /** Nobody waits for the message. */
  async cancel(id: number): Promise<void> {
    await this.bookings.delete(id);
    this.amqp.publish('hotel', 'booking.cancelled', { id });
  }
}
