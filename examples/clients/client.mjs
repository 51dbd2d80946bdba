// Asks five times with a client that retries, and prints each status: node client.mjs ky|got URL.
const [client, url] = process.argv.slice(2);

const clients = {
  async ky() {
    const { default: ky } = await import('ky');
    return async () => (await ky.get(url, { retry: 5 })).status;
  },
  async got() {
    const { default: got } = await import('got');
    return async () => (await got.get(url, { retry: { limit: 5 } })).statusCode;
  },
};

const ask = await clients[client]();
for (let i = 0; i < 5; i++) console.log(await ask());
