// Command init writes one file and exits. It is for an init container that prepares a
// volume for the other containers of its pod.
//
//	init -to /srv/www/index.html [-text 'hello from ${POD_NAME}']
//
// ${NAME} in the text is replaced from the environment.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	to := flag.String("to", "", "the `file` to write")
	text := flag.String("text", "hello\n", "what to write")
	flag.Parse()
	if err := write(*to, os.ExpandEnv(*text)); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
	fmt.Println("wrote", *to)
}

func write(to, text string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(text), 0o644)
}
