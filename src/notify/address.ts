/**
 * Which addresses an outgoing call may reach. Everything that is not plain public unicast is refused unless the config
 * lists it, and so is every notation that hides another address inside. Pure: names are resolved elsewhere.
 */
import { BlockList, isIP, isIPv4 } from 'node:net';
import { EXIT, UnbrokerError } from '../errors.js';

/** IANA's special-purpose registries, IPv4: nothing of this is the public internet. */
const REFUSED_V4 = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.31.196.0', 24],
  ['192.52.193.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['192.175.48.0', 24],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const;

/** Of IPv6 only 2000::/3 is public; these are the holes in it. */
const REFUSED_V6 = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['2620:4f:8000::', 48],
  ['3fff::', 20],
] as const;

const refusedV4 = new BlockList();
for (const [network, bits] of REFUSED_V4) refusedV4.addSubnet(network, bits, 'ipv4');
const publicV6 = new BlockList();
publicV6.addSubnet('2000::', 3, 'ipv6');
const refusedV6 = new BlockList();
for (const [network, bits] of REFUSED_V6) refusedV6.addSubnet(network, bits, 'ipv6');

export interface AddressRules {
  /** True when a connection to this IP address may be made. */
  allows(address: string): boolean;
}

/** `allowed`: networks as `127.0.0.0/8` or `fd00::/8` that are open although they are private. Throws `config-invalid`. */
export function addressRules(allowed: readonly string[] = []): AddressRules {
  const open = new BlockList();
  for (const entry of allowed) {
    const [network = '', bits = '', ...more] = entry.split('/');
    const family = isIP(network);
    if (
      family === 0 ||
      more.length > 0 ||
      !/^\d{1,3}$/.test(bits) ||
      Number(bits) > (family === 4 ? 32 : 128)
    ) {
      throw new UnbrokerError('config-invalid', 'notify.allowedNetworks has an entry that is not a network', {
        hint: 'Write each as address/bits, for example 10.1.0.0/16 or 127.0.0.1/32.',
        exitStatus: EXIT.badInput,
      });
    }
    open.addSubnet(network, Number(bits), family === 4 ? 'ipv4' : 'ipv6');
  }
  return {
    allows(address) {
      const family = isIP(address);
      if (family === 0 || address.includes('%')) return false;
      if (family === 4) return open.check(address, 'ipv4') || !refusedV4.check(address, 'ipv4');
      // ::ffff:a.b.c.d connects to the IPv4 address itself.
      const mapped = mappedV4(address);
      if (mapped !== null) return this.allows(mapped);
      if (open.check(address, 'ipv6')) return true;
      return publicV6.check(address, 'ipv6') && !refusedV6.check(address, 'ipv6');
    },
  };
}

function mappedV4(address: string): string | null {
  const dotted = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (dotted !== undefined && isIPv4(dotted)) return dotted;
  // URL writes it as ::ffff:7f00:1.
  const hex = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(address);
  if (hex === null) return null;
  const [high, low] = [Number.parseInt(hex[1] as string, 16), Number.parseInt(hex[2] as string, 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/**
 * Why a URL is not one to call, or null. Names pass here: every address of a name is vetted when it is resolved, and
 * the vetted address is the one connected to.
 */
export function refuseUrl(text: string, rules: AddressRules): string | null {
  if (text.length > 2_000) return 'the URL is too long';
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return 'it is not a URL';
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return 'it is not an http or https URL';
  if (url.username !== '' || url.password !== '') return 'a URL must not carry a user or password';
  const host = literalOf(url);
  if (isIP(host) !== 0 && !rules.allows(host)) return 'the address is private or reserved';
  if (/(^|\.)localhost\.?$/i.test(host) && !rules.allows('127.0.0.1'))
    return 'the address is private or reserved';
  return null;
}

/** The host without the brackets of an IPv6 literal. */
export function literalOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, '$1');
}
