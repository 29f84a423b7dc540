import { defineConfig } from 'vitest/config';

// A test waits for what must happen; this bounds what never does, on a slow and loaded machine too.
const bounds = { testTimeout: 120_000, hookTimeout: 180_000, teardownTimeout: 120_000 };

export default defineConfig({
  test: {
    fileParallelism: false,
    projects: [
      { test: { ...bounds, name: 'unit', include: ['test/unit/**/*.test.ts'] } },
      {
        test: {
          ...bounds,
          name: 'daemon',
          include: ['test/daemon/**/*.test.ts'],
          globalSetup: ['test/real.ts'],
        },
      },
    ],
  },
});
