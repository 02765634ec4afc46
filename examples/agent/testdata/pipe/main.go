// Command pipe prints what comes out of a named pipe, for ever: the log of a
// container that runs it is what a test writes there.
package main

import (
	"io"
	"os"
)

func main() {
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0) // a writer of its own, so that it never ends
	if err == nil {
		_, err = io.Copy(os.Stdout, f)
	}
	if err != nil {
		panic(err)
	}
}
