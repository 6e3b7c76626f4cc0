/** Where a database URL leads, for a line that a person reads: `db.internal:5432/app`, without user, password and options. Pure. */
export function databasePlace(url: string): string {
  const { hostname, port, pathname, searchParams } = new URL(url);
  const folder = searchParams.get('host') ?? decodeURIComponent(hostname);
  const host = folder.startsWith('/') ? folder : searchParams.get('host') || hostname || 'localhost';
  return `${host}:${searchParams.get('port') || port || 5432}${decodeURIComponent(pathname).replace(/^\/$/, '')}`;
}
