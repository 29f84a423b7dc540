package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/cubbyhq/cubby/client"
)

// daemon stands in for a running cubby in these examples.
func daemon() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 201, `{"id":"my-box","status":"running","isolation":"gvisor"}`)
	})
	mux.HandleFunc("POST /v1/sandboxes/my-box/exec", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, `{"seq":1,"status":"done","exit_code":0,"reason":"exited","stdout":"2\n","stderr":""}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/my-box/execs/1/stream", func(w http.ResponseWriter, _ *http.Request) {
		sse(w, 2, "stdout", `{"data":"2\n","encoding":"utf-8","offset":0}`)
		sse(w, 2, "exit", `{"seq":1,"status":"done","exit_code":0,"reason":"exited"}`)
	})
	mux.HandleFunc("POST /v1/sandboxes/my-box/code", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, `{"seq":2,"status":"done","success":true,"kernel":"python","stdout":"hello\n","result":{"text/plain":"42"},"outputs":[],"reason":"exited"}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/my-box/code/2", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, `{"seq":2,"status":"done","success":true,"kernel":"python","result":{"text/plain":"42"},"outputs":[],"reason":"exited"}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/my-box/execs/2/stream", func(w http.ResponseWriter, _ *http.Request) {
		sse(w, 6, "stdout", `{"data":"hello\n","encoding":"utf-8","offset":0}`)
		sse(w, 60, "rich", `{"result":{"execution_count":1,"data":{"text/plain":"42"}}}`)
		sse(w, 60, "exit", `{"seq":2,"status":"done","exit_code":0,"reason":"exited"}`)
	})
	mux.HandleFunc("PUT /v1/sandboxes/my-box/files", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"path":"/workspace/hello.txt","name":"hello.txt","type":"file","size":5,"mode":"0644"}`)
	})
	mux.HandleFunc("GET /v1/sandboxes/gone", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 404, `{"error":{"code":"not_found","message":"no such sandbox","hint":"see GET /v1/sandboxes"}}`)
	})
	mux.HandleFunc("DELETE /v1/sandboxes/my-box", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	return httptest.NewServer(mux)
}

func Example() {
	server := daemon()
	defer server.Close()
	ctx := context.Background()

	c := client.New(server.URL)
	defer c.Close()
	box, err := c.Create(ctx, client.CreateOptions{Isolation: "gvisor"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Destroy(ctx, box.ID)

	res, err := c.Exec(ctx, box.ID, client.Command("python3", "-c", "print(1+1)"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(res.Stdout)
	// Output: 2
}

func ExampleProcess_Stream() {
	server := daemon()
	defer server.Close()
	ctx := context.Background()

	c := client.New(server.URL)
	defer c.Close()
	p, err := c.StartExec(ctx, "my-box", client.Shell("python3 -c 'print(1+1)'"))
	if err != nil {
		log.Fatal(err)
	}
	for out, err := range p.Stream(ctx, 0) {
		switch {
		case err != nil:
			log.Fatal(err)
		case out.Exit != nil:
			fmt.Println("exit code", *out.Exit.ExitCode)
		default:
			fmt.Printf("%s %q\n", out.Stream, out.Data)
		}
	}
	// Output:
	// stdout "2\n"
	// exit code 0
}

func ExampleClient_RunCode() {
	server := daemon()
	defer server.Close()

	c := client.New(server.URL)
	defer c.Close()
	e, err := c.RunCode(context.Background(), "my-box", client.CodeRequest{Code: "print('hello')\n6 * 7"})
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Err(); err != nil { // the code raised, or its time was up
		log.Fatal(err)
	}
	fmt.Print(e.Stdout)
	fmt.Println(e.Text())
	// Output:
	// hello
	// 42
}

func ExampleClient_StreamCode() {
	server := daemon()
	defer server.Close()

	c := client.New(server.URL)
	defer c.Close()
	for out, err := range c.StreamCode(context.Background(), "my-box", client.CodeRequest{Code: "print('hello')\n6 * 7"}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case out.Done != nil:
			fmt.Println("success:", out.Done.Success)
		case out.Result != nil:
			fmt.Println("result:", out.Result.Text())
		default:
			fmt.Printf("%s: %q\n", out.Stream, out.Text)
		}
	}
	// Output:
	// stdout: "hello\n"
	// result: 42
	// success: true
}

func ExampleFiles_Write() {
	server := daemon()
	defer server.Close()

	c := client.New(server.URL)
	defer c.Close()
	f, err := c.Files("my-box").Write(context.Background(), "hello.txt", strings.NewReader("hello"), client.WriteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Path, f.Size)
	// Output: /workspace/hello.txt 5
}

func ExampleError() {
	server := daemon()
	defer server.Close()

	c := client.New(server.URL)
	defer c.Close()
	_, err := c.Get(context.Background(), "gone")
	if errors.Is(err, client.NotFound) {
		var e *client.Error
		errors.As(err, &e)
		fmt.Printf("%s (%s)\n", e.Message, e.Hint)
	}
	// Output: no such sandbox (see GET /v1/sandboxes)
}
