// Command pipe prints the content of a named pipe, without end. A test writes to the
// pipe, and so determines the log of the container that runs this command.
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
