"""LDAP over TLS, octet by octet: what no client library would send."""

import socket
import ssl


def element(tag, *parts):
    content = b"".join(parts)
    if len(content) < 128:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes(4, "big")
    return bytes([tag, 0x84]) + length + content


def text(value, tag=0x04):
    return element(tag, value.encode() if isinstance(value, str) else value)


def integer(value, tag=0x02):
    return element(tag, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def bind(name, password):
    return element(0x60, integer(3), text(name), text(password, 0x80))


def equals(attribute, value):
    return element(0xA3, text(attribute), text(value))


def present(attribute):
    return text(attribute, 0x87)


def search(base, query, scope=2, attributes=("1.1",)):
    names = [text(name) for name in attributes]
    return element(
        0x63, text(base), integer(scope, 0x0A), integer(0, 0x0A), integer(0), integer(0), element(0x01, b"\0"), query, element(0x30, *names)
    )


def abandon(number):
    return integer(number, 0x50)


def parts(content):
    """Tag and content of each element."""
    found = []
    while content:
        tag, length, start = content[0], content[1], 2
        if length >= 128:
            start = 2 + (length & 0x7F)
            length = int.from_bytes(content[2:start], "big")
        found.append((tag, content[start:start + length]))
        content = content[start + length:]
    return found


class Connection:
    """A connection of an LDAP client from an address of this host."""

    def __init__(self, port, root, source="127.0.0.1", seconds=30):
        plain = socket.create_connection(("127.0.0.1", port), timeout=seconds, source_address=(source, 0))
        self.socket = ssl.create_default_context(cafile=str(root)).wrap_socket(plain, server_hostname="localhost")
        self.buffer = b""
        self.number = 0

    def send(self, operation, number=None):
        self.number += 1
        message = element(0x30, integer(self.number if number is None else number), operation)
        self.socket.sendall(message)

    def begin(self, operation):
        """Sends the first kilobyte of a message."""
        self.socket.sendall(element(0x30, integer(1), operation)[:1024])

    def receive(self):
        """Message id, tag and content of the next message; `None` at the end."""
        while True:
            if len(self.buffer) >= 2:
                length, start = self.buffer[1], 2
                if length >= 128:
                    start = 2 + (length & 0x7F)
                    length = int.from_bytes(self.buffer[2:start], "big")
                if len(self.buffer) >= start + length:
                    message, self.buffer = self.buffer[start:start + length], self.buffer[start + length:]
                    (_, number), (tag, content) = parts(message)[:2]
                    return int.from_bytes(number, "big"), tag, content
            try:
                more = self.socket.recv(65536)
            except (ConnectionResetError, ssl.SSLEOFError):
                more = b""
            if not more:
                return None
            self.buffer += more

    def result(self):
        """Code and message of the next message that is no entry, and how many entries came before; `None` at the end."""
        entries = 0
        while True:
            message = self.receive()
            if message is None:
                return None
            number, tag, content = message
            if tag == 0x64:
                entries += 1
                continue
            (_, code), _, (_, said) = parts(content)[:3]
            return int.from_bytes(code, "big"), said.decode(), entries, number

    def ask(self, operation):
        self.send(operation)
        return self.result()

    def close(self):
        self.socket.close()
