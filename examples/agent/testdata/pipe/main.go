// Command pipe prints the content of a named pipe and never ends. A test writes the log of the
// container that runs this command into the pipe.
package main

import (
	"io"
	"os"
)

func main() {
	f, err := os.OpenFile(os.Args[1], os.O_RDWR, 0) // with O_RDWR the pipe always has a writer, so that reads do not end
	if err == nil {
		_, err = io.Copy(os.Stdout, f)
	}
	if err != nil {
		panic(err)
	}
}
