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
