import { revalidatePath } from 'next/cache';
import { cookies } from 'next/headers';
import { redirect } from 'next/navigation';

const said = (globalThis.said ??= []);

async function say(form) {
  'use server';
  said.push(String(form.get('text')));
  (await cookies()).set('said', String(said.length));
  revalidatePath('/');
}

async function leave() {
  'use server';
  redirect('/?left=1');
}

export default async function Page({ searchParams }) {
  const { left } = await searchParams;
  return (
    <main style={{ fontFamily: 'sans-serif', padding: '2rem' }}>
      <h1>{left ? 'You left' : 'Hello from Next'}</h1>
      <ul>
        {said.map((text, i) => (
          <li key={i}>{text}</li>
        ))}
      </ul>
      <form action={say}>
        <input name="text" aria-label="text" />
        <button id="say">Say</button>
      </form>
      <form action={leave}>
        <button id="leave">Leave</button>
      </form>
    </main>
  );
}
