package record_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/record"
)

// A program with an agent of its own records two states of a container, one of them twice.
func Example() {
	tmp, err := os.MkdirTemp("", "record")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	dir := filepath.Join(tmp, "record")
	r, err := record.New(record.Config{Dir: dir, Node: "edge-7"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	code := int32(137)
	entry := record.Entry{Pod: record.Pod{Namespace: "shop", Name: "web", UID: "1"}, Container: "app"}
	for _, fact := range []record.Fact{
		&record.Instance{ID: "a", State: "running"},
		&record.Instance{ID: "a", State: "running"},
		&record.Instance{ID: "a", State: "exited", ExitCode: &code, Reason: "OOMKilled", Limit: 64 << 20},
	} {
		entry.Fact = fact
		r.Record(entry)
	}
	cancel()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}

	for e, err := range record.Read(dir, record.Filter{Namespace: "shop", Name: "web"}) {
		if err != nil {
			log.Fatal(err)
		}
		f := e.Fact.(*record.Instance)
		fmt.Printf("%s is %s, reason %q\n", e.Container, f.State, f.Reason)
	}
	// Output:
	// app is running, reason ""
	// app is exited, reason "OOMKilled"
}
