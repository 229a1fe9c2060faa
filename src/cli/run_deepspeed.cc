// The interpreter is the command itself, the one in its first line, or the first Python on PATH.
// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_deepspeed.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace zero::cli {

namespace {

constexpr char kQuestion[] =
    "import os, libzero.as_deepspeed as a; print(a.python_path(os.environ.get('PYTHONPATH', '')))";

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_python(const std::string& word) {
  return base_name(word).rfind("python", 0) == 0 || base_name(word).rfind("pypy", 0) == 0;
}

// Where execvp would find it; empty: nowhere.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// The Python that a script's first line names, as in "#!/venv/bin/python" and "#!/usr/bin/env
// python3".
std::string python_of_script(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  char start[2] = {};
  if (!file.read(start, 2) || start[0] != '#' || start[1] != '!' || !std::getline(file, line)) {
    return "";
  }
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (is_python(word)) return word;
  }
  return "";
}

std::string python_of(const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    // `env A=b python x.py`, `nice python x.py`: the first word that is a Python
    if (is_python(word) && !find_program(word).empty()) return word;
  }
  const std::string found = find_program(command[0]);
  const std::string named = found.empty() ? "" : python_of_script(found);
  if (!named.empty()) return named;
  return find_program("python").empty() ? "python3" : "python";
}

// What a program prints on stdout and stderr; its exit code, or -1 where it could not be run.
int ask(const std::vector<std::string>& command, std::string* said) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    execvp(words[0], words.data());
    _exit(127);
  }
  close(ends[1]);
  char buffer[4096];
  ssize_t got;
  while ((got = read(ends[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) said->append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int port = 29500;
  if (listener >= 0 && bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  if (listener >= 0) close(listener);
  return port;
}

} // namespace

bool find_deepspeed_name(const std::vector<std::string>& command,
                         std::vector<std::string>* variables, std::string* reason) {
  const std::string python = python_of(command);
  std::string said;
  const int code = ask({python, "-c", kQuestion}, &said);
  if (code != 0) {
    *reason = "--as-deepspeed: " + python + " cannot tell where its libzero is (" +
              (said.empty() ? "it could not be run" : last_line(said)) +
              "); expected a Python that has libzero, as by pip install ./bindings/python";
    return false;
  }
  variables->push_back("PYTHONPATH=" + last_line(said));
  return true;
}

void find_meeting_point(std::vector<std::string>* variables) {
  if (getenv("MASTER_ADDR") != nullptr || getenv("MASTER_PORT") != nullptr) return;
  variables->push_back("MASTER_ADDR=127.0.0.1");
  variables->push_back("MASTER_PORT=" + std::to_string(free_port()));
}

} // namespace zero::cli
