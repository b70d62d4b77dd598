from grid_gateway import main

main()
