package atomicdir_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/volumemgr/internal/atomicdir"
)

func Example() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	w, err := atomicdir.New(atomicdir.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	for _, greeting := range []string{"hello", "hello", "good evening"} {
		changed, err := w.Write(atomicdir.Payload{"greeting": {Data: []byte(greeting), Mode: 0o644}})
		if err != nil {
			panic(err)
		}
		seen, err := os.ReadFile(filepath.Join(dir, "greeting"))
		if err != nil {
			panic(err)
		}
		fmt.Println(changed, string(seen))
	}
	link, err := os.Readlink(filepath.Join(dir, "greeting"))
	if err != nil {
		panic(err)
	}
	fmt.Println(link)
	// Output:
	// true hello
	// false hello
	// true good evening
	// ..data/greeting
}
